"""Programs of developers: they make data files of the project, and none of them runs where Stoker does."""

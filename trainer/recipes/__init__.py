"""Recipes: settings known to work, one TOML file each, named in `recipe`. They hold no code and nothing reads them but
`trainer.config.settings`.
"""

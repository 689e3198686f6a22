"""`stoker diagnose`: offline diagnosis of logs and metric files."""

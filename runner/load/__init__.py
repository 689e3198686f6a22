"""Load: files that people write -> specs and runbooks. The only package that knows YAML.

It reads a file, gathers everything that is wrong with it, and either returns a frozen fact or raises one SpecError that names
file, line, field, value and the way out for each problem. It resolves paths and defaults, so that lower layers need not know
where the file lies; it starts nothing and writes nothing. Values follow YAML 1.2: `yes`, `on` and `1:30` are text, `1e-4` is
a number; anchors, aliases and tags are refused.
"""

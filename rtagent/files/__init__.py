"""Reading and writing files safely: whole or not at all, regular files alone, TOML."""

"""Play by a person or a script: states in which episodes can begin, and demonstrations."""

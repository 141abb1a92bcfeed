"""Play by a person or a script: saves states as starts of episodes, records demonstrations."""

"""The environment side: worlds that do not wait for the agent."""

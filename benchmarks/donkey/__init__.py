"""DonkeyCar: its environment, its embedded simulator, and driving that is learned."""

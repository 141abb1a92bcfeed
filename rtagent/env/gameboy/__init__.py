"""Game Boy worlds: emulators, cartridges, rewards, and the two games that come with rtagent."""

"""The frozen target model: taps, embeddings, identity, greedy text."""

"""DFlash: block-diffusion speculative decoding, its drafters, their training and evaluation."""

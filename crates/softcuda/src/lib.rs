//! A CUDA driver for machines without a GPU.

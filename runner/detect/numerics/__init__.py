"""Numerics: detectors of spikes, divergence, NaN, loss scale and throughput, for live runs and for metric files alike."""

"""lnexp: what does the place of layer normalisation do to Transformer training?"""

__version__ = "0.1.0"

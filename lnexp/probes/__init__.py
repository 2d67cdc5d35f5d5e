"""What can be measured of an update: the classes that ``conf/probes`` names."""

from lnexp.probes.activations import StreamNorm
from lnexp.probes.attention import AttentionEntropy
from lnexp.probes.gradients import GradNorm, MeanGradNorm
from lnexp.probes.normalisers import NormJacobian
from lnexp.probes.protocol import Probe, Reading, Until, Update
from lnexp.probes.sharpness import Sharpness
from lnexp.probes.updates import UpdateSize

__all__ = [
    "AttentionEntropy", "GradNorm", "MeanGradNorm", "NormJacobian", "Probe", "Reading", "Sharpness",
    "StreamNorm", "Until", "Update", "UpdateSize",
]  # fmt: skip

"""Compare programs: who differs from whom on a communicator that they share, where and in what.

Agreement is per communicator (design §3): the canonical digest decides whether, and a comparison
of the postings says what. Sends, receives and splits are not compared here but paired.
"""

from __future__ import annotations

from rankmuster.compare.engine import compare as compare
from rankmuster.compare.engine import compare_classes as compare_classes

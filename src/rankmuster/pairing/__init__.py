"""What has another end: sends meet receives, and input splits the output splits of their peers.

These are never compared for equality; per communicator, directed edge and label the k-th send meets
the k-th receive.
"""

from __future__ import annotations

from rankmuster.pairing.ledger import ledger as ledger
from rankmuster.pairing.meet import pair as pair
from rankmuster.pairing.meet import pair_classes as pair_classes

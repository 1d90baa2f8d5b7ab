"""Reports as people read them. Knows reports and programs, never where they came from."""

from __future__ import annotations

from rankmuster.render.report import findings_text as findings_text
from rankmuster.render.report import headline as headline
from rankmuster.render.report import modules as modules
from rankmuster.render.report import text as text

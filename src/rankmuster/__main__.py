from __future__ import annotations

from rankmuster.cli import main

if __name__ == "__main__":
    main()

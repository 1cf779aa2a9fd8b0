"""Every rank writes so many lines, each of which names its rank and its number."""

import os
import sys

if __name__ == "__main__":
    rank = os.environ["RANK"]
    for number in range(int(sys.argv[1])):
        os.write(1, f"rank {rank} line {number} {'.' * (number % 40)}\n".encode())

"""A PyTorch model through torch.compile(backend="diapason"): run it twice, and the second process builds nothing.

    $ python3 torch_compile.py [SECONDS TO TUNE]
"""

import sys
import time

import diapason as dp
import torch


class Classifier(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = torch.nn.Sequential(torch.nn.Conv2d(3, 32, 3, stride=2, padding=1), torch.nn.BatchNorm2d(32), torch.nn.ReLU(),
                                            torch.nn.Conv2d(32, 64, 3, stride=2, padding=1), torch.nn.BatchNorm2d(64), torch.nn.ReLU())
        self.head = torch.nn.Linear(64, 10)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return torch.softmax(self.head(self.features(image).mean((2, 3))), -1)


def milliseconds(run, image):
    run(image)
    start = time.perf_counter()
    for _ in range(50):
        run(image)
    return (time.perf_counter() - start) / 50 * 1e3


torch.manual_seed(1)
model = Classifier().eval()
image = torch.randn(1, 3, 64, 64)
options = {"seconds": float(sys.argv[1])} if len(sys.argv) > 1 else None
compiled = torch.compile(model, backend="diapason", options=options)
with torch.no_grad():
    start = time.perf_counter()
    error = (compiled(image) - model(image)).abs().max()
    print(f"first call {time.perf_counter() - start:.1f} s, largest difference to eager mode {error:.1g}")
    print(f"eager {milliseconds(model, image):.3f} ms, diapason {milliseconds(compiled, image):.3f} ms")
for fallback in dp.explain_fallbacks():
    print(fallback)

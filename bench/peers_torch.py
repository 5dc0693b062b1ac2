#!/usr/bin/env python3
"""PyTorch's latency of torchvision's ResNet-18 on the first NVIDIA GPU: batch 1, 224x224, float32 without TF32.

Random weights. Each memory format is captured in one CUDA graph with cuDNN's own search on, as fast as PyTorch runs it
without a compiler; prints medians in microseconds as one JSON document.
"""
import json
import statistics

import torch
import torchvision


def graph_samples(call, samples=50, warm_up=10):
    """Microseconds of replays of one captured call, each timed by events."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(warm_up):
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    for _ in range(warm_up):
        graph.replay()
    torch.cuda.synchronize()
    times = []
    for _ in range(samples):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1e3)
    return times


@torch.inference_mode()
def main():
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    torch.manual_seed(0)
    report = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
    for name, memory_format in (("nchw", torch.contiguous_format), ("nhwc", torch.channels_last)):
        model = torchvision.models.resnet18(weights=None).eval().cuda().to(memory_format=memory_format)
        image = torch.randn(1, 3, 224, 224, device="cuda").contiguous(memory_format=memory_format)
        report[name + "_us"] = statistics.median(graph_samples(lambda: model(image)))
    report["best_us"] = min(report["nchw_us"], report["nhwc_us"])
    print(json.dumps(report))


if __name__ == "__main__":
    main()

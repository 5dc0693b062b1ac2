"""The networks that exports.py exports: of torchvision, timm and transformers, with random weights.

Sizes are small where the published ones would take minutes on two cores; the kinds of layers are the published ones. NETWORKS has for each
name a function that makes a Network.
"""
import dataclasses
import functools

import torch
from torch import nn


@dataclasses.dataclass
class Network:
    module: nn.Module  # its inputs and outputs are tensors, by position
    inputs: dict  # example inputs by name, in order
    dims: dict = dataclasses.field(default_factory=dict)  # symbolic dimensions: {input: {axis: symbol}}
    room: int = 0  # of results with as many rows as the network finds: for so many


ONE_TYPE = ("float32",)
TWO_TYPES = ("float32", "float16")
ALL_TYPES = ("float32", "float16", "bfloat16")
NETWORKS = {}
TYPES = {}  # the types that each of NETWORKS is exported in


def network(name, types=TWO_TYPES):
    """Enters a function into NETWORKS."""
    def enter(make):
        NETWORKS[name] = make
        TYPES[name] = types
        return make
    return enter


def image(size, channels=3, batch=1):
    return torch.randn(batch, channels, size, size)


def tokens(*shape, below=100):
    return torch.randint(0, below, shape)


class Call(nn.Module):
    """A module called by keywords, with tensors picked from what it returns."""

    def __init__(self, module, names, pick, **options):
        super().__init__()
        self.module, self.names, self.pick, self.options = module, names, pick, options

    def forward(self, *inputs):
        return self.pick(self.module(**dict(zip(self.names, inputs)), **self.options))


def of_transformers(cls, config, inputs, pick, **options):
    import transformers
    config_class = getattr(transformers, config.pop("config"))
    if "attention" in config:
        options_of_class = {"attn_implementation": config.pop("attention")}
    else:
        options_of_class = {}
    module = getattr(transformers, cls)._from_config(config_class(**config), **options_of_class)
    return Network(Call(module, list(inputs), pick, **options), inputs)


# ---- torchvision: networks of images

def torchvision_network(name, size, pick=None, **options):
    import torchvision
    find = getattr(torchvision.models, name, None) or getattr(torchvision.models.segmentation, name, None) or getattr(torchvision.models.video, name)
    module = find(weights=None, **options)
    return Network(Call(module, [first_parameter(module)], pick) if pick else module, {"image": image(size)})


def first_parameter(module):
    return module.forward.__code__.co_varnames[1]


def enter_torchvision(name, size, types=TWO_TYPES, pick=None, **options):
    network(name, types)(functools.partial(torchvision_network, name, size, pick, **options))


def out(result):
    return result["out"]


enter_torchvision("resnet18", 224, types=ALL_TYPES)
enter_torchvision("resnet50", 96)
enter_torchvision("mobilenet_v2", 96, types=ALL_TYPES)
enter_torchvision("mobilenet_v3_small", 96)
enter_torchvision("efficientnet_b0", 96)
enter_torchvision("densenet121", 64)
enter_torchvision("vgg11_bn", 224)
enter_torchvision("squeezenet1_1", 96)
enter_torchvision("inception_v3", 139, aux_logits=False, init_weights=False)
enter_torchvision("googlenet", 96, aux_logits=False, init_weights=False)
enter_torchvision("regnet_y_400mf", 96)
enter_torchvision("shufflenet_v2_x0_5", 96)
enter_torchvision("mnasnet0_5", 96)
enter_torchvision("convnext_tiny", 64, types=ALL_TYPES)
enter_torchvision("vit_b_16", 64, types=ALL_TYPES, image_size=64)
enter_torchvision("swin_t", 64)
enter_torchvision("swin_v2_t", 64)
enter_torchvision("maxvit_t", 224)
enter_torchvision("deeplabv3_mobilenet_v3_large", 96, pick=out, weights_backbone=None)
enter_torchvision("lraspp_mobilenet_v3_large", 96, pick=out, weights_backbone=None)
enter_torchvision("fcn_resnet50", 64, pick=out, weights_backbone=None)


@network("resnet18-dynamic")
def resnet18_dynamic():
    made = torchvision_network("resnet18", 64)
    made.inputs = {"image": image(64, batch=2)}
    made.dims = {"image": {0: "batch"}}
    return made


@network("r3d_18")
def r3d_18():
    made = torchvision_network("r3d_18", 0 or 32)
    made.inputs = {"video": torch.randn(1, 3, 8, 48, 48)}
    return made


# ---- timm: families of image networks that torchvision does not have

def timm_network(name, size, **options):
    import timm
    return Network(timm.create_model(name, pretrained=False, **options), {"image": image(size)})


def enter_timm(name, size, types=TWO_TYPES, **options):
    network(name, types)(functools.partial(timm_network, name, size, **options))


enter_timm("deit_tiny_patch16_224", 224)
enter_timm("dm_nfnet_f0", 64)
enter_timm("mixer_s32_224", 224)
enter_timm("convmixer_768_32", 64)
enter_timm("edgenext_xx_small", 64)
enter_timm("ghostnet_100", 96)
enter_timm("repvgg_a0", 96)
enter_timm("mobilevit_xxs", 64)
enter_timm("poolformer_s12", 64)
enter_timm("levit_128s", 224)
enter_timm("coatnet_nano_rw_224", 224)
enter_timm("res2net50_26w_4s", 64)
enter_timm("hrnet_w18_small", 64)


# ---- transformers: text

def first(result):
    return result[0]


BERT_SIZES = {"vocab_size": 100, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 256}


def text_inputs(batch=1, length=16, types=True):
    mask = torch.ones(batch, length, dtype=torch.int64)
    mask[:, length - 3:] = 0
    inputs = {"input_ids": tokens(batch, length), "attention_mask": mask}
    return {**inputs, "token_type_ids": tokens(batch, length, below=2)} if types else inputs


@network("bert", types=ALL_TYPES)
def bert(**sizes):
    return of_transformers("BertModel", {"config": "BertConfig", **BERT_SIZES, **sizes}, text_inputs(), lambda r: (r[0], r[1]))


@network("bert-dynamic")
def bert_dynamic():
    made = bert()
    made.inputs = text_inputs(2, 12)
    made.dims = {name: {0: "batch", 1: "sequence"} for name in made.inputs}
    return made


@network("distilbert")
def distilbert():
    sizes = {"vocab_size": 100, "dim": 64, "n_layers": 2, "n_heads": 4, "hidden_dim": 256}
    return of_transformers("DistilBertForSequenceClassification", {"config": "DistilBertConfig", **sizes}, text_inputs(types=False), first)


@network("roberta")
def roberta():
    return of_transformers("RobertaForTokenClassification", {"config": "RobertaConfig", **BERT_SIZES}, text_inputs(types=False), first)


@network("albert")
def albert():
    return of_transformers("AlbertModel", {"config": "AlbertConfig", "embedding_size": 32, **BERT_SIZES}, text_inputs(), first)


@network("electra")
def electra():
    return of_transformers("ElectraForPreTraining", {"config": "ElectraConfig", "embedding_size": 32, **BERT_SIZES}, text_inputs(), first)


@network("t5-encoder")
def t5_encoder():
    sizes = {"vocab_size": 100, "d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4}
    return of_transformers("T5EncoderModel", {"config": "T5Config", **sizes}, text_inputs(types=False), first)


# ---- transformers: text that is generated

GPT2_SIZES = {"config": "GPT2Config", "vocab_size": 100, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 64}
LLAMA_SIZES = {"vocab_size": 100, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
               "intermediate_size": 128, "head_dim": 16, "max_position_embeddings": 64}


def decoder(cls, config, length=12):
    return of_transformers(cls, dict(config), text_inputs(length=length, types=False), first, use_cache=False)


network("gpt2", types=ALL_TYPES)(lambda: decoder("GPT2LMHeadModel", GPT2_SIZES))
network("llama", types=ALL_TYPES)(lambda: decoder("LlamaForCausalLM", {"config": "LlamaConfig", **LLAMA_SIZES}))
network("qwen2")(lambda: decoder("Qwen2ForCausalLM", {"config": "Qwen2Config", **LLAMA_SIZES}))
network("mistral")(lambda: decoder("MistralForCausalLM", {"config": "MistralConfig", "sliding_window": 8, **LLAMA_SIZES}))
network("gemma")(lambda: decoder("GemmaForCausalLM", {"config": "GemmaConfig", **LLAMA_SIZES}))
network("phi")(lambda: decoder("PhiForCausalLM", {"config": "PhiConfig", **{k: v for k, v in LLAMA_SIZES.items() if k != "head_dim"}}))


class DecodeStep(nn.Module):
    """One more token with the keys and values of those before as inputs and outputs."""

    def __init__(self, module, layers):
        super().__init__()
        self.module, self.layers = module, layers

    def forward(self, input_ids, *past):
        from transformers import DynamicCache
        cache = DynamicCache()
        for layer in range(self.layers):
            cache.update(past[2 * layer], past[2 * layer + 1], layer)
        result = self.module(input_ids=input_ids, past_key_values=cache, use_cache=True)
        kept = result.past_key_values
        pairs = [(l.keys, l.values) for l in kept.layers]
        return (result.logits, *[t for pair in pairs for t in pair])


def decode_step(cls, config, heads, length=12):
    made = decoder(cls, config)
    inputs = {"input_ids": tokens(1, 1)}
    for layer in range(2):
        inputs |= {f"past_{name}_{layer}": torch.randn(1, heads, length, 16) for name in ("key", "value")}
    return Network(DecodeStep(made.module.module, 2), inputs)


network("gpt2-decode")(lambda: decode_step("GPT2LMHeadModel", GPT2_SIZES, 4))
network("llama-decode")(lambda: decode_step("LlamaForCausalLM", {"config": "LlamaConfig", **LLAMA_SIZES}, 2))


# ---- transformers: sound and images

@network("whisper-encoder")
def whisper_encoder():
    import transformers
    sizes = {"vocab_size": 100, "d_model": 64, "encoder_layers": 2, "encoder_attention_heads": 4, "encoder_ffn_dim": 128, "num_mel_bins": 40,
             "max_source_positions": 50, "decoder_layers": 1, "decoder_attention_heads": 4, "decoder_ffn_dim": 64, "pad_token_id": 0,
             "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    module = transformers.WhisperModel(transformers.WhisperConfig(**sizes)).get_encoder()
    inputs = {"input_features": torch.randn(1, 40, 100)}
    return Network(Call(module, list(inputs), first), inputs)


@network("wav2vec2")
def wav2vec2():
    sizes = {"vocab_size": 32, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128,
             "conv_dim": (32,) * 7, "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4}
    return of_transformers("Wav2Vec2ForCTC", {"config": "Wav2Vec2Config", **sizes}, {"input_values": torch.randn(1, 4000)}, first)


CLIP_TEXT = {"vocab_size": 100, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128,
             "max_position_embeddings": 32, "projection_dim": 32, "eos_token_id": 99}
CLIP_IMAGE = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128, "image_size": 64, "patch_size": 16,
              "projection_dim": 32}


@network("clip-text")
def clip_text():
    return of_transformers("CLIPTextModelWithProjection", {"config": "CLIPTextConfig", **CLIP_TEXT}, text_inputs(types=False), first)


@network("clip-image")
def clip_image():
    return of_transformers("CLIPVisionModelWithProjection", {"config": "CLIPVisionConfig", **CLIP_IMAGE}, {"pixel_values": image(64)}, first)


@network("vit-transformers")
def vit_transformers():
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128, "image_size": 64}
    return of_transformers("ViTForImageClassification", {"config": "ViTConfig", **sizes}, {"pixel_values": image(64)}, first)


@network("swin-transformers")
def swin_transformers():
    sizes = {"image_size": 64, "embed_dim": 32, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4}
    return of_transformers("SwinForImageClassification", {"config": "SwinConfig", **sizes}, {"pixel_values": image(64)}, first)


@network("segformer")
def segformer():
    sizes = {"depths": [1, 1, 1, 1], "hidden_sizes": [16, 32, 48, 64], "num_attention_heads": [1, 2, 3, 4], "decoder_hidden_size": 64}
    return of_transformers("SegformerForSemanticSegmentation", {"config": "SegformerConfig", **sizes}, {"pixel_values": image(64)}, first)


@network("detr")
def detr():
    sizes = {"d_model": 64, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
             "encoder_ffn_dim": 128, "decoder_ffn_dim": 128, "num_queries": 10, "use_timm_backbone": True, "backbone": "resnet18",
             "use_pretrained_backbone": False}
    return of_transformers("DetrForObjectDetection", {"config": "DetrConfig", **sizes}, {"pixel_values": image(64)},
                           lambda r: (r.logits, r.pred_boxes))


# ---- a network that finds

class Detector(nn.Module):
    """A box at each of 256 places, and those of them that overlap none with a better score."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.SiLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.SiLU())
        self.head = nn.Conv2d(32, 4 + 3, 1)
        across = torch.arange(16).repeat(16) * 4.0
        self.register_buffer("corner", torch.stack([across, across.reshape(16, 16).T.reshape(-1)], 1))

    def forward(self, image):
        import torchvision
        y = self.head(self.body(image)).flatten(2)[0].T
        centre, size = torch.sigmoid(y[:, :2]) * 4 + self.corner, torch.exp(y[:, 2:4] * 0.5) * 12
        boxes = torch.cat([centre - size / 2, centre + size / 2], 1)
        scores, classes = torch.sigmoid(y[:, 4:]).max(1)
        kept = torchvision.ops.nms(boxes, scores, 0.3)
        return boxes[kept], scores[kept], classes[kept]


network("detector", ONE_TYPE)(lambda: Network(Detector(), {"image": image(64)}, room=128))


class TorchvisionDetector(nn.Module):
    """What a detector of torchvision finds in the first image, its filter and non-maximum suppression included."""

    def __init__(self, module, masks=False):
        super().__init__()
        self.module, self.masks = module, masks

    def forward(self, image):
        found = self.module(list(image))[0]
        results = found["boxes"], found["scores"], found["labels"]
        return (*results, found["masks"]) if self.masks else results


def batched_nms(boxes, scores, idxs, iou_threshold):
    """That of torchvision, without the question whether there are any boxes, at which torch.export gives up."""
    import torchvision
    offsets = idxs.to(boxes) * (boxes.max() + 1)
    return torchvision.ops.nms(boxes + offsets[:, None], scores, iou_threshold)


def enter_detector(name, function, size, spread=1, **options):
    """`spread`: of scores, which would else be equal within rounding errors, so that their order would be chance."""
    @network(name, ONE_TYPE)
    def make():
        import torchvision
        torchvision.ops.boxes.batched_nms = batched_nms
        module = getattr(torchvision.models.detection, function)(weights=None, weights_backbone=None, num_classes=4, **options)
        if spread != 1:
            module.head.classification_head.cls_logits.weight.data.mul_(spread)
        return Network(TorchvisionDetector(module), {"image": torch.rand(1, 3, size, size)}, room=50)


def enter_two_stages(name, function, size, spread, room=40):
    """Regions by a filter and non-maximum suppression, then boxes in them by another: up to `room` of each. `spread`: of classes' scores, as of
    enter_detector. Masks of Mask R-CNN are those of its head; it pastes them into the image by a loop over boxes, each of another size, which is
    to be done after the network."""
    @network(name, ONE_TYPE)
    def make():
        import torchvision
        torchvision.ops.boxes.batched_nms = batched_nms
        module = getattr(torchvision.models.detection, function)(
            weights=None, weights_backbone=None, num_classes=4, min_size=size, max_size=size, rpn_pre_nms_top_n_test=100,
            rpn_post_nms_top_n_test=room, box_detections_per_img=room)
        module.rpn.head.cls_logits.weight.data.mul_(50)
        module.roi_heads.box_predictor.cls_score.weight.data.mul_(spread)
        masks = "mask" in function
        if masks:
            module.transform.postprocess = lambda result, *sizes: result
        return Network(TorchvisionDetector(module, masks), {"image": torch.rand(1, 3, size, size)}, room=room)


enter_two_stages("fasterrcnn_mobilenet", "fasterrcnn_mobilenet_v3_large_320_fpn", 128, 5)
enter_two_stages("fasterrcnn_resnet50", "fasterrcnn_resnet50_fpn", 128, 1)
enter_two_stages("maskrcnn_resnet50", "maskrcnn_resnet50_fpn", 128, 1)

enter_detector("ssdlite320", "ssdlite320_mobilenet_v3_large", 320, detections_per_img=50, topk_candidates=100)
enter_detector("retinanet", "retinanet_resnet50_fpn", 128, min_size=128, max_size=128, detections_per_img=50, topk_candidates=100,
               score_thresh=0.005, spread=20)
enter_detector("fcos", "fcos_resnet50_fpn", 128, min_size=128, max_size=128, detections_per_img=50, topk_candidates=100, score_thresh=0.05)


# ---- recurrent networks

class Tagger(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.embedding = nn.Embedding(100, 32)
        self.recurrent = getattr(nn, kind)(32, 48, num_layers=2, bidirectional=True, batch_first=True)
        self.tags = nn.Linear(96, 10)

    def forward(self, words):
        return self.tags(self.recurrent(self.embedding(words))[0])


network("lstm-tagger")(lambda: Network(Tagger("LSTM"), {"words": tokens(2, 12)}))
network("gru-tagger")(lambda: Network(Tagger("GRU"), {"words": tokens(2, 12)}))


# ---- a network that draws

class UNet(nn.Module):
    """Two levels down and up, with transposed convolutions, group norm and a skip."""

    def __init__(self):
        super().__init__()
        self.down1, self.down2 = self.block(3, 16), self.block(16, 32)
        self.up = nn.ConvTranspose2d(32, 16, 2, stride=2)
        self.join, self.last = self.block(32, 16), nn.Conv2d(16, 2, 1)

    @staticmethod
    def block(inputs, outputs):
        return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.GroupNorm(4, outputs), nn.SiLU())

    def forward(self, x):
        skip = self.down1(x)
        low = self.up(self.down2(nn.functional.max_pool2d(skip, 2)))
        return nn.functional.interpolate(self.last(self.join(torch.cat([low, skip], 1))), scale_factor=2, mode="bilinear")


network("unet")(lambda: Network(UNet(), {"image": image(64)}))

"""Inputs like those that models were trained for: on noise, many answer with numbers near 0, which says nothing about errors."""
import numpy as np

SAMPLE_RATE = 16000
WORDS = ("Hello world", "Invoice 4711", "No parking", "Gate B 23", "Total 19.90", "Main Street")


def speech(rows, samples, random):
    """Vowels of a voice, (rows, samples): harmonics of a gliding pitch under three formants, in syllables, with a little noise."""
    sound = np.zeros((rows, samples))
    time = np.arange(samples) / SAMPLE_RATE
    for row in sound:
        pitch = random.uniform(100, 180) * (1 + 0.1 * np.sin(2 * np.pi * random.uniform(2, 5) * time))
        phase = 2 * np.pi * np.cumsum(pitch) / SAMPLE_RATE
        formants = [(random.uniform(*band), width) for band, width in (((300, 800), 80), ((900, 2200), 120), ((2300, 3000), 160))]
        for harmonic in range(1, 30):
            frequency = harmonic * pitch.mean()
            gain = sum(1 / (1 + ((frequency - f) / width) ** 2) for f, width in formants)
            row += gain * np.sin(harmonic * phase)
        row *= 0.6 + 0.4 * np.sin(2 * np.pi * 4 * time + random.uniform(0, 6))
        row *= 0.5 / np.abs(row).max()
        row += random.normal(0, 0.003, samples)
    return sound.astype(np.float32)


def text_images(shape, random):
    """Dark words on a light ground, (n, 3, height, width), from -1 to 1."""
    from PIL import Image, ImageDraw, ImageFont

    images = np.zeros(shape, np.float32)
    height, width = shape[2:]
    for image in images:
        canvas = Image.new("RGB", (width, height), (230, 228, 220))
        draw = ImageDraw.Draw(canvas)
        word = WORDS[random.integers(len(WORDS))]
        size = max(12, int(height * random.uniform(0.3, 0.5)))
        while size > 8 and draw.textlength(word, font=ImageFont.load_default(size)) > width - 8:
            size -= 1
        draw.text((4, (height - size) // 2), word, font=ImageFont.load_default(size), fill=(20, 20, 40))
        image[:] = np.asarray(canvas, np.float32).transpose(2, 0, 1) / 127.5 - 1
    return images


def warmed_up(session, feeds, states, frames, random):
    """`feeds` with the states (inputs, each with the output that follows it) as after some frames of speech."""
    feeds = dict(feeds)
    outputs = [o.name for o in session.get_outputs()]
    for name in states:
        feeds[name] = np.zeros_like(feeds[name])
    rows, samples = feeds["input"].shape
    for sound in np.split(speech(rows, samples * frames, random), frames, axis=1):
        results = dict(zip(outputs, session.run(None, {**feeds, "input": np.ascontiguousarray(sound)})))
        feeds.update({name: results[follower] for name, follower in states.items()})
    return feeds

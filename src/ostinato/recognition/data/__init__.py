"""Training pictures: record files, folders of people and synthetic sets, cut into batches for any number of ranks."""

from ostinato.recognition.data.augmentation import Augmentation
from ostinato.recognition.data.loader import RecognitionBatch, RecognitionLoader
from ostinato.recognition.data.opening import open_source
from ostinato.recognition.data.source import BadImages, Source

__all__ = ["Augmentation", "BadImages", "RecognitionBatch", "RecognitionLoader", "Source", "open_source"]

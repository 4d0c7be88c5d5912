"""RecordIO: one file that holds millions of small records, and an index that says where each begins."""

from ostinato.data.recordio.image_record import ImageRecord, pack_image_record, unpack_image_record
from ostinato.data.recordio.index import RecordIndex, index_path, read_index
from ostinato.data.recordio.reader import Damage, Located, RecordFile
from ostinato.data.recordio.writer import RecordWriter, write_index

__all__ = [
    "Damage",
    "ImageRecord",
    "Located",
    "RecordFile",
    "RecordIndex",
    "RecordWriter",
    "index_path",
    "pack_image_record",
    "read_index",
    "unpack_image_record",
    "write_index",
]

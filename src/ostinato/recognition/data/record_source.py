"""The pictures of a record file as a source of training pictures."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ostinato.data.file_names import shown_name
from ostinato.data.jpeg import ImageError
from ostinato.data.pictures import decode_rgb
from ostinato.data.recordio.errors import record_error
from ostinato.data.recordio.image_record import ImageRecord, unpack_image_record
from ostinato.errors import ArgumentValueError, RecordError
from ostinato.recognition.data.record_set import RecordSet
from ostinato.recognition.data.source import DEFAULT_MAX_BAD, BadImages


class RecordSource:
    """The pictures of a :class:`RecordSet`, in the order of the file; see
    :class:`~ostinato.recognition.data.source.Source`.

    Memory: 32 bytes a picture, besides what the caller keeps of ``found``.

    :param found: an open set; this closes it.
    :param min_images: identities with fewer pictures are left out, and the others numbered anew without gaps.
    :param max_bad_records: damaged records that are skipped; those that are known already count.
    :raises DataSetError: more than that are damaged.
    """

    def __init__(self, found: RecordSet, *, min_images: int = 1, max_bad_records: int = DEFAULT_MAX_BAD) -> None:
        if min_images < 1:
            raise ArgumentValueError(f"min_images is {min_images}.", advice="Use 1 or more.")
        self._file = found.file
        keep = np.bincount(found.labels)[found.labels] >= min_images
        if not keep.any():
            raise record_error(
                found.file.path,
                f"no identity has {min_images} pictures; the largest has {np.bincount(found.labels).max()}",
                advice="Ask for fewer.",
            )
        self._offsets = found.scan.offsets[found.images[keep]]
        self._keys = found.keys[found.images[keep]]
        self.labels: npt.NDArray[np.int64] = found.labels[keep]
        self.classes = int(self.labels.max()) + 1
        if min_images > 1:
            present, self.labels = np.unique(self.labels, return_inverse=True)
            self.classes = len(present)
        elif found.declared is not None:
            self.classes = max(self.classes, found.declared.classes)
        self.bad = BadImages(max_bad_records)
        for error in found.bad:
            self.bad.add(("record", error.fields["key"], error.fields["offset"]), error)

    def __len__(self) -> int:
        return len(self._offsets)

    def record(self, index: int) -> ImageRecord:
        """The whole record of a picture, not decoded.

        :raises RecordError: it is damaged.
        """
        try:
            return unpack_image_record(self._file.read(int(self._offsets[index]), key=int(self._keys[index])))
        except ValueError as error:
            raise self.error(index, str(error)) from None

    def read(self, index: int) -> tuple[npt.NDArray[np.uint8], int]:
        """See :meth:`Source.read`."""
        record = self.record(index)
        try:
            return decode_rgb(record.image), int(self.labels[index])
        except ImageError as error:
            raise self.error(index, f"the picture cannot be used: {error}") from None

    def error(self, index: int, reason: str) -> RecordError:
        """The error that names the record of a picture."""
        return record_error(self._file.path, reason, key=int(self._keys[index]), offset=int(self._offsets[index]))

    def place(self, index: int) -> str:
        """See :meth:`Source.place`."""
        return f"{shown_name(self._file.path)} (key {self._keys[index]}, byte {self._offsets[index]:,})"

    def close(self) -> None:
        """Close the file. May be called more than once."""
        self._file.close()

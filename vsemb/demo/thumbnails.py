"""The pictures of the page as small JPEGs, by their places.

A request names a place in the list of pictures, never a file. Pictures are decoded and encoded anew, so only images can
be sent.
"""

from __future__ import annotations

import functools
import threading
from typing import Any

from vsemb.demo.pictures import Pictures
from vsemb.drawing.pictures import jpeg_bytes, scaled_to
from vsemb.errors import VsembError, one_line

#: First part of the address of a picture.
FOLDER = "pictures"
# Longer sides in pixels, on a card and enlarged.
_SMALL, _LARGE = 400, 1600
_REMEMBERED = 1024
# Pictures of 50 million pixels each are decoded at the same time.
_AT_ONCE = 4


class Thumbnails:
    """Small JPEGs of pictures.

    Args:
        pictures: the pictures.

    Example:

        Thumbnails(pictures).small(0)
    """

    def __init__(self, pictures: Pictures) -> None:
        self._pictures = pictures
        self._decoding = threading.Semaphore(_AT_ONCE)
        # A cache per object, so that it is freed with the object.
        self.small = functools.lru_cache(_REMEMBERED)(self._small)

    def _small(self, place: int) -> bytes:
        with self._decoding:
            return jpeg_bytes(scaled_to(self._pictures.picture(place, _SMALL), _SMALL))

    def large(self, place: int) -> bytes:
        """Return a picture for the enlarged view; small ones are enlarged to the size of a card.

        Args:
            place: its place.

        Raises:
            DataError: if it is missing or damaged.
        """
        with self._decoding:
            picture = self._pictures.picture(place, _LARGE)
            return jpeg_bytes(scaled_to(picture, min(max(*picture.size, _SMALL), _LARGE)))

    def add_to(self, application: Any) -> None:
        """Serve the pictures.

        Args:
            application: the `fastapi.FastAPI`.
        """
        from fastapi import Response

        def answer(place: int, large: bool = False) -> Response:
            if not 0 <= place < len(self._pictures):
                return Response("There is no such picture.", 404, media_type="text/plain")
            try:
                encoded = self.large(place) if large else self.small(place)
            except VsembError as error:
                return Response(one_line(error), 404, media_type="text/plain")
            # Another page at the same address has other pictures.
            return Response(encoded, media_type="image/jpeg", headers={"Cache-Control": "no-store"})

        # FastAPI reads hints as they are at run time.
        answer.__annotations__.update(place=int, large=bool)
        answer.__annotations__.pop("return")
        application.add_api_route(f"/{FOLDER}/{{place}}", answer, response_model=None)

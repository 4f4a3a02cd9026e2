"""Demonstration page of a run: search by sentence, image and arithmetic in a browser.

answers.py   results of the tabs, computed without a page: indexes and encoders are opened once
page.py      the Gradio page: heading, image inputs, events, results as HTML
tabs.py      the tabs of a retrieval run
server.py    the HTTP server on 127.0.0.1; the page makes no requests to other hosts
"""

from vsemb.demo.answers import Answer, ComparedSentence, Demo
from vsemb.demo.server import serve_demo

__all__ = ["Answer", "ComparedSentence", "Demo", "serve_demo"]

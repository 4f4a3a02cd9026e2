"""Drawing: pictures, contact sheets and templates of pages."""

"""Elements of a page that exceed its width."""


def overflowing(browser):
    """Return the elements drawn beyond the right edge of the page, or wider than their container."""
    return browser.evaluate(
        """() => [
          document.documentElement.scrollWidth > innerWidth ? "page" : "",
          ...[...document.querySelectorAll("body *")]
            .filter((e) => !e.closest(".scroll, pre, svg, script"))
             .filter((e) => e.getBoundingClientRect().right > innerWidth + 0.5)
            .map((e) => e.tagName + "." + e.className),
          ...[...document.querySelectorAll(".chart")]
            .filter((e) => e.querySelector("svg").getBoundingClientRect().width > e.clientWidth + 0.5)
            .map((e) => e.dataset.chart),
        ].filter(Boolean)"""
    )

// What of the text on the page stands out from what is behind it by less than 4.5 to 1 (WCAG 2, AA).
(() => {
  const canvas = Object.assign(document.createElement("canvas"), { width: 1, height: 1 });
  const paint = canvas.getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => {
    paint.clearRect(0, 0, 1, 1);
    paint.fillStyle = colour;
    paint.fillRect(0, 0, 1, 1);
    return [...paint.getImageData(0, 0, 1, 1).data];
  };
  const linear = (c) => c / 255 <= 0.03928 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const behind = (element) => {
    const layers = [];
    for (let at = element; at; at = at.parentElement) {
      const colour = rgba(getComputedStyle(at).backgroundColor);
      if (colour[3]) layers.unshift(colour);
      if (colour[3] === 255) break;
    }
    return layers.reduce((under, over) => under.map((c, at) => c + (over[at] - c) * over[3] / 255), [255, 255, 255]);
  };
  const found = {};
  for (const element of document.querySelectorAll("body *")) {
    const text = [...element.childNodes].filter((node) => node.nodeType === 3).map((node) => node.data.trim()).join("");
    if (!text || element.closest("svg, .unseen, .skip, noscript, [hidden]") || !element.checkVisibility()) continue;
    const [a, b] = [light(rgba(getComputedStyle(element).color)), light(behind(element))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) found[`${element.tagName}.${element.className}: ${text.slice(0, 30)}`] = ratio.toFixed(2);
  }
  return found;
})()

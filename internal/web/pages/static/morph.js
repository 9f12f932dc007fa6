// Makes one tree of elements like another, and changes only what differs: the
// focus, the selection, the scroll position, open details and typed text stay.

// keyOf identifies an element among its siblings.
function keyOf(node) {
  if (node.nodeType !== Node.ELEMENT_NODE) return null;
  return node.id ? `#${node.id}` : node.dataset.key ? `=${node.dataset.key}` : null;
}

function fits(a, b) {
  return a.nodeType === b.nodeType && a.nodeName === b.nodeName && keyOf(a) === keyOf(b);
}

// Attributes that the user changes once the page is loaded.
function belongsToReader(element, name) {
  return (name === "open" && element.nodeName === "DETAILS")
    || ((name === "value" || name === "checked") && element.nodeName === "INPUT" && element.type !== "hidden")
    || (name === "hidden" && element.hasAttribute("data-unhidden"));
}

function attributes(from, to) {
  for (const { name, value } of to.attributes) {
    if (belongsToReader(from, name) || from.getAttribute(name) === value) continue;
    from.setAttribute(name, value);
  }
  for (const { name } of [...from.attributes]) {
    if (to.hasAttribute(name) || belongsToReader(from, name) || name === "data-unhidden") continue;
    from.removeAttribute(name);
  }
}

// takesPlaceOf finds the sibling from at on that becomes next: the one with its
// key, or the next one of its kind without a key.
function takesPlaceOf(at, next) {
  const key = keyOf(next);
  for (let candidate = at; candidate; candidate = candidate.nextSibling) {
    if (fits(candidate, next)) return candidate;
    if (key === null && keyOf(candidate) === null && candidate.nodeType === Node.ELEMENT_NODE) return null;
  }
  return null;
}

// morph makes from like to. Both elements have the same name.
export function morph(from, to) {
  if (from.hasAttribute("data-keep") && to.hasAttribute("data-keep")) return;
  attributes(from, to);
  let at = from.firstChild;
  for (let next = to.firstChild; next; next = next.nextSibling) {
    const found = takesPlaceOf(at, next);
    if (!found) {
      from.insertBefore(document.importNode(next, true), at);
      continue;
    }
    if (found !== at) from.insertBefore(found, at);
    else at = at.nextSibling;
    if (found.nodeType === Node.ELEMENT_NODE) morph(found, next);
    else if (found.nodeValue !== next.nodeValue) found.nodeValue = next.nodeValue;
  }
  while (at) {
    const gone = at;
    at = at.nextSibling;
    gone.remove();
  }
}

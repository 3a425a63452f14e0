// What all scripts of a page are made of: elements, and arrays that the page carries.
const spenElements = (() => {
  const bytes = (packed) => Uint8Array.from(atob(packed), (c) => c.charCodeAt(0)).buffer;
  const floats = (packed) => new Float32Array(bytes(packed));

  // Makes an element; attributes whose value is a function listen.
  function make(tag, attributes = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (typeof value === "function") element.addEventListener(name, value);
      else if (value !== null && value !== false) element.setAttribute(name, value === true ? "" : value);
    }
    element.append(...children);
    return element;
  }

  return { bytes, floats, make };
})();

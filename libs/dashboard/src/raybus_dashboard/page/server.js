// What the page must know of its server before any answer: this one serves many users.

/** A token in an address would sign the reader of a link in as the user who wrote the link. */
export const takesTokenOfAddress = false;

// What the page must know of its server before any answer: this one serves the user of its machine.

/** The address that the command prints holds the token of the run; no other token means anything. */
export const takesTokenOfAddress = true;

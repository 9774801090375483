/** The version of this package, and of the wheel that `loadPython` installs. */

export const VERSION = "0.1.0";

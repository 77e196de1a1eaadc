/** Under this name the mark of a call leaves a program; its way out takes it off. */
export const MARK_HEADER = 'x-pilothouse-mark'

const FRAME = /\n {4}at [^\n]*?(?= <- |\n|$)/g
const NAME = /(^| <- )[A-Z]\w*: /g

/** The messages of a stored error and its causes, in one line. The log has the stacks. */
export function errorLine(text: string): string {
  const messages = text.replace(FRAME, '')
  const isError = messages !== text
  return (isError ? messages.replace(NAME, '$1') : messages).replaceAll(/\s*\n\s*/g, ' ')
}

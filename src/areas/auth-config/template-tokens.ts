export interface Token {
  kind: 'word' | 'field' | 'dot' | 'variable' | 'string' | 'number' | 'open' | 'close' | 'pipe' | 'assign' | 'comma'
  text: string
}

/** Each from where the last one ended; the first that fits counts. */
const FORMS: readonly [Token['kind'] | 'space' | 'end', RegExp][] = [
  ['end', /(?:\s-)?\}\}/y],
  // What a closing `-` trims belongs to it.
  ['space', /\s+(?!-\}\})/y],
  ['string', /"(?:[^"\\\n]|\\[^\n])*"/y],
  ['string', /`[^`]*`/y],
  ['string', /'(?:[^'\\\n]|\\[^'\n]+|\\')'/y],
  ['number', /[+-]?(?:0[xXbBoO][0-9a-fA-F_]+|[0-9][0-9_]*(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?)i?(?![\w.])/y],
  ['field', /(?:\.[\p{L}_][\p{L}\p{N}_]*)+/uy],
  ['dot', /\./y],
  ['variable', /\$(?:[\p{L}_][\p{L}\p{N}_]*)?/uy],
  ['word', /[\p{L}_][\p{L}\p{N}_]*/uy],
  ['open', /\(/y],
  ['close', /\)/y],
  ['pipe', /\|/y],
  ['assign', /:?=/y],
  ['comma', /,/y],
]

interface Action {
  tokens: Token[]
  /** Behind the braces that close it. */
  end: number
  problem?: string
}

/** The action that begins at `from`, behind its opening braces. */
export function tokensOf(text: string, from: number): Action {
  const tokens: Token[] = []
  let at = from + (/^-\s/.test(text.slice(from, from + 2)) ? 1 : 0)
  while (at < text.length) {
    const found = nextAt(text, at)
    if (!found) return { tokens, end: at, problem: `unexpected ${JSON.stringify(text.slice(at, at + 10))}` }
    at += found.text.length
    if (found.kind === 'end') return { tokens, end: at }
    if (found.kind !== 'space') tokens.push({ kind: found.kind, text: found.text })
  }
  return { tokens, end: at, problem: 'an action is not closed with }}' }
}

function nextAt(text: string, at: number) {
  for (const [kind, form] of FORMS) {
    form.lastIndex = at
    const [found] = form.exec(text) ?? []
    if (found !== undefined) return { kind, text: found }
  }
  return undefined
}

/** Converts Postgres's array text (`{1,NULL,"a b"}`, also nested or prefixed with bounds) to a JSON array. */
export function arrayToJson(text: string, element: (text: string) => string): string {
  const start = text.startsWith('[') ? text.indexOf('=') + 1 : 0
  let json = ''
  let at = start
  while (at < text.length) {
    const character = text[at]
    if (character === '{') json += '['
    else if (character === '}') json += ']'
    else if (character === ',') json += ','
    else {
      const end = character === '"' ? closingQuote(text, at) : endOfBareElement(text, at)
      const raw = text.slice(at, end)
      json += character === '"' ? element(unquote(raw)) : raw === 'NULL' ? 'null' : element(raw)
      at = end
      continue
    }
    at += 1
  }
  return json
}

function closingQuote(text: string, opening: number): number {
  let at = opening + 1
  while (at < text.length && text[at] !== '"') at += text[at] === '\\' ? 2 : 1
  return at + 1
}

function endOfBareElement(text: string, start: number): number {
  let at = start
  while (at < text.length && text[at] !== ',' && text[at] !== '}') at += 1
  return at
}

function unquote(raw: string): string {
  return raw.slice(1, -1).replace(/\\([\s\S])/g, '$1')
}

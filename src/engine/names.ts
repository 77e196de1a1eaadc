export interface ProjectNames {
  database: string
  owner: string
  runner: string
  reader: string
}

/** Every identifier the engine writes into SQL comes from here, so none can carry anything but letters and `_`. */
export function projectNames(ref: string): ProjectNames {
  if (!/^[a-z]{20}$/.test(ref)) throw new Error('A project reference is 20 lowercase letters')
  return { database: `p_${ref}`, owner: `p_${ref}`, runner: `p_${ref}_sql`, reader: `p_${ref}_read` }
}

export function loginRoles({ owner, runner, reader }: ProjectNames): string[] {
  return [owner, runner, reader]
}

export function quoteLiteral(text: string): string {
  if (text.includes('\0')) throw new Error('A literal cannot hold a NUL character')
  const quoted = `'${text.replaceAll("'", "''")}'`
  return text.includes('\\') ? ` E${quoted.replaceAll('\\', '\\\\')}` : quoted
}

export function quoteLiterals(texts: readonly string[]): string {
  return texts.map(quoteLiteral).join(', ')
}

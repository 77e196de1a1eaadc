import { StartError } from './start-error.ts'

/** Reads the flags of a command. Refuses unknown ones, because a typing error must not start something else. */
export function readFlags<Flag extends string>(command: string, known: readonly Flag[]): ReadonlySet<Flag> {
  const given = process.argv.slice(2)
  const unknown = given.filter((text) => !known.some((flag) => flag === text))
  if (unknown.length > 0) {
    const taken = known.length > 0 ? `takes ${known.join(', ')} and nothing else` : 'takes no arguments'
    throw new StartError(`${command} does not know ${unknown.join(' ')}: it ${taken}.`)
  }
  return new Set(given as Flag[])
}

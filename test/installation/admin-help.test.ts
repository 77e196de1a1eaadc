import { describe, expect, it } from 'vitest'
import { readCommand, readHelp } from '../../dev/admin/commands.ts'

/** Each command of the noun, with its summary below it. */
const HOSTS =
  /^npm run admin -- hosts <command>\n\n {2}hosts add [^\n]*\n {6}Add a [^\n]*\n {2}hosts drain <name>\n {6}Place [^\n]*\n {2}hosts remove <name> \[--lost\]\n {6}Remove [^\n]*\n {2}hosts list\n {6}List the database hosts\.$/

describe('the help of a command line', () => {
  it.each([
    ['--help', /^npm run admin -- <command>\n\n(?: {2}.*\n)* {2}member set <slug>.*\n {6}Set a member's role, in the/],
    ['hosts --help', HOSTS],
    ['member set -h', /^npm run admin -- member set <slug> <username> <[^\n]*\n\nSet a member's role/],
  ])('is printed for %s', (line, text) => {
    expect(readHelp(line.split(' '))).toMatch(text)
  })

  it('is not printed without --help', () => {
    expect(readHelp(['hosts', 'list'])).toBeUndefined()
  })

  it('of an unknown command is refused', () => {
    expect(() => readHelp(['hosst', '--help'])).toThrow(/^Unknown command: hosst\n\nnpm run admin -- <command>\n/)
  })

  it('exists for each command', () => {
    const names = [...(readHelp(['--help']) ?? '').matchAll(/^ {2}([a-z-]+(?: [a-z][a-z-]*)?)/gm)].map(
      ([, name = '']) => name,
    )
    expect(names.length).toBeGreaterThan(35)
    for (const name of names) {
      expect(readHelp([...name.split(' '), '--help'])).toMatch(
        new RegExp(`^npm run admin -- ${name}[^\\n]*\\n\\n[A-Z].*\\.$`),
      )
    }
  })
})

describe('a wrong command line', () => {
  it.each([
    [
      'member set acme',
      /^member set takes <slug> <username> <.*>; 1 given\n\nnpm run admin -- member set <slug>[^\n]*$/,
    ],
    ['hosts list now', /^hosts list takes no arguments; 1 given\n\nnpm run admin -- hosts list$/],
    ['token list x --ref x', /^Unknown option '--ref'.*\n\nnpm run admin -- token list <username>$/s],
    ['hosts', HOSTS],
    ['hosts drop', /^Unknown command: hosts drop\n\nnpm run admin -- hosts <command>\n\n {2}hosts add/],
    ['hosst list', /^Unknown command: hosst list\n\nnpm run admin -- <command>\n/],
  ])('prints only the usage of its command: %s', (line, text) => {
    expect(() => readCommand(line.split(' '))).toThrow(text)
  })
})

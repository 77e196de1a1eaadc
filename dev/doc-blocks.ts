/** Files whose shell blocks are checked. */
export const CHECKED_FILES = ['*.md', 'docs/**/*.md']
const RUNS = 'sh'
/** Marks blocks that cannot run here, because they need a cloud, a second machine or another start. */
export const SHOWN_ONLY = 'sh no-check'
/** Refused languages: blocks with other names of the shell would not be checked. */
const UNKNOWN = /^(sh|bash|shell|console|zsh)\b/
/** A declaration has the status of `export` itself, so the shell goes on if the command in it fails. */
const HIDDEN_FAILURE = /^\s*(?:export|readonly|declare|local)\s.*?(\w+)="?(?:\$\(|`)/m

export interface Page {
  path: string
  blocks: string[]
  shownOnly: number
}

/** Reads the shell blocks of a page of the documentation. */
export function parsePage(path: string, text: string): Page {
  const fences = [...text.matchAll(/^( *)```(.*)\n([\s\S]*?)^\1```$/gm)]
  const page: Page = { path, blocks: [], shownOnly: 0 }
  for (const [, indent = '', language = '', block = ''] of fences) {
    const hidden = language === RUNS ? HIDDEN_FAILURE.exec(block)?.[1] : undefined
    if (hidden) throw new Error(`${path}: \`export ${hidden}=$(…)\` hides a failure: assign first, then export`)
    if (language === RUNS) page.blocks.push(block.replaceAll(new RegExp(`^${indent}`, 'gm'), ''))
    else if (language === SHOWN_ONLY) page.shownOnly += 1
    else if (UNKNOWN.test(language))
      throw new Error(`${path}: \`${language}\` must be \`${RUNS}\` or \`${SHOWN_ONLY}\``)
  }
  return page
}

import type { AssetFile, AssetManifest } from '../../../builder/asset-manifest.ts'

type Files = ReadonlyMap<string, AssetFile>
export type OpenedManifest = Omit<AssetManifest, 'files'> & { files: Files }

/** What stands at a path: a file with its status, or the path that a file is served at. */
export type AssetAnswer = { path: string; status: 200 | 404 } | { redirect: string }

/** Undefined where no asset answers. Settings and their effects are those of Cloudflare's static assets. */
export function findAsset(manifest: OpenedManifest, path: string): AssetAnswer | undefined {
  return findPage(manifest, path) ?? findInstead(manifest, path)
}

/** Whether assets answer the request, and not the program. */
export function goesToAssets(manifest: OpenedManifest, path: string, headers: Headers): boolean {
  const { runWorkerFirst, hasProgram } = manifest
  if (!hasProgram) return true
  if (runWorkerFirst === true) return false
  if (runWorkerFirst) {
    const matches = (isExcluded: boolean) =>
      runWorkerFirst.some((rule) => rule.startsWith('!') === isExcluded && matchesRule(rule.replace('!', ''), path))
    if (matches(true)) return true
    if (matches(false)) return false
  }
  // A browser that opens a page gets the page for what is not found, and no program runs for it.
  const isNavigation = headers.get('sec-fetch-mode') === 'navigate'
  return (isNavigation ? findAsset : findPage)(manifest, path) !== undefined
}

function findPage({ files, htmlHandling }: OpenedManifest, path: string): AssetAnswer | undefined {
  const exact = files.has(path) ? ({ path, status: 200 } as const) : undefined
  if (htmlHandling === 'none' || (exact && !path.endsWith('.html'))) return exact
  const stem = path.replace(/(\/index)?\.html$|\/index$|\/$/, '')
  const [page, index] = [`${stem}.html`, `${stem}/index.html`]
  const asIndex = /\/(index(\.html)?)?$/.test(path)
  const first = htmlHandling === 'drop-trailing-slash' ? page : index
  for (const file of asIndex ? [index, page] : [page, index]) {
    if (!files.has(file)) continue
    const shown = addressOf(htmlHandling, stem, file === index)
    // One of two files with the same address, and one whose address is the name of a file, are served at their own names.
    const isTaken = files.has(shown) || (file !== first && files.has(first) && htmlHandling !== 'auto-trailing-slash')
    const address = isTaken ? file : shown
    if (address === path) return { path: file, status: 200 }
    if (!isTaken) return { redirect: address }
  }
  return exact
}

function addressOf(handling: AssetManifest['htmlHandling'], stem: string, isIndex: boolean): string {
  const isSlashed = handling === 'force-trailing-slash' || (handling === 'auto-trailing-slash' && isIndex)
  return isSlashed || stem === '' ? `${stem}/` : stem
}

function findInstead({ files, notFoundHandling }: OpenedManifest, path: string): AssetAnswer | undefined {
  if (notFoundHandling === 'none') return undefined
  if (notFoundHandling === 'single-page-application') {
    return files.has('/index.html') ? { path: '/index.html', status: 200 } : undefined
  }
  for (let folder = path; folder !== ''; ) {
    folder = folder.slice(0, folder.lastIndexOf('/'))
    const page = `${folder}/404.html`
    if (files.has(page)) return { path: page, status: 404 }
  }
  return undefined
}

/** In one pass, however many `*` there are. */
function matchesRule(rule: string, path: string): boolean {
  const [start = '', ...parts] = rule.split('*')
  const end = parts.pop()
  if (end === undefined) return path === rule
  if (!path.startsWith(start) || !path.endsWith(end)) return false
  let at = start.length
  for (const part of parts) {
    const found = path.indexOf(part, at)
    if (found < 0) return false
    at = found + part.length
  }
  return at <= path.length - end.length
}

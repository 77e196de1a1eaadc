import type { AssetFile, AssetManifest } from '../../../builder/asset-manifest.ts'

type Files = ReadonlyMap<string, AssetFile>
export type OpenedManifest = Omit<AssetManifest, 'files'> & { files: Files }

/** Result of a lookup: a file with its status, or the path to redirect to. */
export type AssetResult = { path: string; status: 200 | 404 } | { redirect: string }

/** Returns undefined if no asset matches. The settings behave like those of Cloudflare's static assets. */
export function findAsset(manifest: OpenedManifest, path: string): AssetResult | undefined {
  return findPage(manifest, path) ?? findFallback(manifest, path)
}

/** Whether the assets, rather than the program, answer the request. */
export function isForAssets(manifest: OpenedManifest, path: string, headers: Headers): boolean {
  const { runWorkerFirst, hasProgram } = manifest
  if (!hasProgram) return true
  if (runWorkerFirst === true) return false
  if (runWorkerFirst) {
    const matches = (isExcluded: boolean) =>
      runWorkerFirst.some((rule) => rule.startsWith('!') === isExcluded && matchesRule(rule.replace('!', ''), path))
    if (matches(true)) return true
    if (matches(false)) return false
  }
  // A page navigation without a matching asset gets the configured fallback page; the program does not run.
  const isNavigation = headers.get('sec-fetch-mode') === 'navigate'
  return (isNavigation ? findAsset : findPage)(manifest, path) !== undefined
}

function findPage({ files, htmlHandling }: OpenedManifest, path: string): AssetResult | undefined {
  const exact = files.has(path) ? ({ path, status: 200 } as const) : undefined
  if (htmlHandling === 'none' || (exact && !path.endsWith('.html'))) return exact
  const stem = path.replace(/(\/index)?\.html$|\/index$|\/$/, '')
  const [page, index] = [`${stem}.html`, `${stem}/index.html`]
  const asIndex = /\/(index(\.html)?)?$/.test(path)
  const first = htmlHandling === 'drop-trailing-slash' ? page : index
  for (const file of asIndex ? [index, page] : [page, index]) {
    if (!files.has(file)) continue
    const pretty = addressOf(htmlHandling, stem, file === index)
    // If the address is taken by another file, this file is served at its own name.
    const isTaken = files.has(pretty) || (file !== first && files.has(first) && htmlHandling !== 'auto-trailing-slash')
    const address = isTaken ? file : pretty
    if (address === path) return { path: file, status: 200 }
    if (!isTaken) return { redirect: address }
  }
  return exact
}

function addressOf(handling: AssetManifest['htmlHandling'], stem: string, isIndex: boolean): string {
  const isSlashed = handling === 'force-trailing-slash' || (handling === 'auto-trailing-slash' && isIndex)
  return isSlashed || stem === '' ? `${stem}/` : stem
}

function findFallback({ files, notFoundHandling }: OpenedManifest, path: string): AssetResult | undefined {
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

/** Linear in the length of the path, however many `*` the rule has. */
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

import { isBuiltin } from 'node:module'
import { Problem } from './build-problem.ts'
import { replacementOf } from './builtin-modules.ts'
import type { ImportSettings } from './import-map.ts'
import type { LocalPackages } from './local-packages.ts'
import { EMPTY, type Module } from './modules.ts'
import { browserOf, entryOf, fileOf, internalOf, type Kind } from './npm/entry.ts'
import { bareOf, parseBare, parsePackageUrl } from './npm/specifier.ts'
import type { Installed, Versions } from './npm/versions.ts'
import type { PackageFiles } from './package-files.ts'
import type { Remote } from './remote-modules.ts'
import { findFile, pathOf, type Source, urlOf } from './source.ts'
import type { TsConfigs } from './tsconfig.ts'

export interface Imports {
  source: Source
  settings: ImportSettings
  tsConfigs: TsConfigs
  packageFiles: PackageFiles
  localPackages: LocalPackages
  versions: Versions
  remote: Remote
}

export interface Import {
  specifier: string
  importer: Module
  kind: Kind
  /** Whether the import runs only when the program reaches it (`require` or `import()`): it may be for another platform. */
  isLazy: boolean
}

const TYPES_ONLY = /\.d\.[cm]?ts$/

/** Resolves an import. Rejects with Problem, or with Unavailable if a registry cannot be reached. */
export async function resolveImport(imports: Imports, request: Import): Promise<Module> {
  const { specifier, importer } = request
  if (TYPES_ONLY.test(specifier)) return EMPTY
  if (importer.kind === 'package') return fromPackage(imports, importer, request)
  // The import map applies first: its names may be those of runtime modules, but generated code means the latter.
  const url = importer.kind === 'generated' ? undefined : imports.settings.resolve(specifier, baseOf(importer))
  if (url) return fromUrl(imports, url, request)
  const runtime = runtimeModule(request)
  if (runtime) return runtime
  return (importer.kind === 'source' && fromOwnSource(imports, importer.path, request)) || fromBare(imports, request)
}

/** Modules that only exist with the prefix `node:`. */
const PREFIXED_ONLY = ['test', 'sqlite']

/** Modules of the runtime. */
function runtimeModule(request: Import): Module | undefined {
  const { specifier, kind } = request
  if (specifier.startsWith('cloudflare:')) return { kind: 'external', specifier }
  const name = specifier.replace(/^node:/, '')
  // With the prefix, the builder's runtime takes any name for a module.
  const exists = isBuiltin(name) || (name !== specifier && PREFIXED_ONLY.includes(name))
  if (!exists && name === specifier) return undefined
  if (!exists) return missingModule(request, `The runtime has no module "${specifier}"`)
  const builtin = `node:${name}`
  // `require` of a runtime module goes through a generated ES module, as only ES modules can import it.
  return kind === 'import'
    ? { kind: 'external', specifier: builtin }
    : {
        kind: 'generated',
        name: `require ${builtin}`,
        js: `import it from ${JSON.stringify(builtin)}; module.exports = it`,
      }
}

function baseOf(importer: Module): URL {
  if (importer.kind === 'source') return urlOf(importer.path)
  return importer.kind === 'remote' ? new URL(importer.url) : new URL('file:///')
}

async function fromUrl(imports: Imports, url: URL, request: Import): Promise<Module> {
  if (TYPES_ONLY.test(url.pathname)) return EMPTY
  switch (url.protocol) {
    case 'file:':
      return fromSource(imports, url, request)
    case 'https:':
    case 'http:':
      return fromWeb(imports, url)
    case 'npm:':
    case 'jsr:':
      return fromRegistry(imports, url, request)
    case 'data:':
      return dataModule(url)
  }
  const runtime = runtimeModule({ ...request, specifier: url.href })
  if (runtime) return runtime
  throw new Problem(
    `"${request.specifier}" cannot be imported: must be a file or an npm:, jsr:, node: or https: address`,
  )
}

function fromSource({ source }: Imports, url: URL, { specifier, importer }: Import): Module {
  if (importer.kind !== 'source') throw new Problem(`"${specifier}" cannot be imported from ${baseOf(importer)}`)
  const path = findFile(source, pathOf(url))
  const bytes = path === undefined ? undefined : source.get(path)
  if (path === undefined || !bytes) throw new Problem(`The source has no file "${pathOf(url)}"`)
  return { kind: 'source', path, bytes }
}

function dataModule({ href }: URL): Module {
  try {
    const [, contentType = '', base64, data] = /^data:([^,]*?)(;base64)?,(.*)$/i.exec(href) ?? []
    if (data !== undefined) {
      const bytes = Buffer.from(decodeURIComponent(data), base64 ? 'base64' : 'utf8')
      return { kind: 'remote', url: href, bytes: new Uint8Array(bytes), contentType }
    }
  } catch {}
  throw new Problem(`Invalid address "${href}": must be data:<type>,<percent-encoded data>`)
}

/** Resolves within the source, before the registries: by tsconfig.json, then by the package and the workspaces, as bundlers do. */
function fromOwnSource(
  imports: Imports,
  importer: string,
  request: Import,
): ReturnType<typeof resolveImport> | undefined {
  const { source, tsConfigs, localPackages } = imports
  const { specifier, kind } = request
  const mapped = tsConfigs.find(specifier, importer)
  const found = mapped === undefined ? localPackages.find(specifier, importer, kind) : { path: mapped }
  if (!found) return undefined
  if ('specifier' in found) return resolveImport(imports, { ...request, specifier: found.specifier })
  const { path } = found
  return Promise.resolve({ kind: 'source', path, bytes: source.get(path) ?? new Uint8Array() })
}

async function fromWeb({ remote }: Imports, url: URL): Promise<Module> {
  const js = replacementOf(url.href)
  if (js) return { kind: 'generated', name: url.href, js }
  return { kind: 'remote', ...(await remote.get(url)) }
}

async function fromRegistry({ versions }: Imports, { href }: URL, { kind }: Import): Promise<Module> {
  const { name, range, subpath } = parsePackageUrl(href)
  return entry(await versions.install(name, range, { asRoot: true }), subpath, kind)
}

async function fromBare({ packageFiles, versions, tsConfigs }: Imports, request: Import): Promise<Module> {
  const { specifier, importer, kind } = request
  const path = importer.kind === 'source' ? importer.path : undefined
  const bare = bareOf(specifier)
  const range = bare && path !== undefined ? packageFiles.rangeOf(bare.name, path) : undefined
  if (bare && range !== undefined) return entry(await versions.install(bare.name, range), bare.subpath, kind)
  const missing = path === undefined ? undefined : tsConfigs.missing(path)
  const reason = missing && `${missing.file} extends "${missing.named}", which is not in the source`
  if (reason) throw new Problem(`"${specifier}" cannot be found: ${reason}`)
  parseBare(specifier)
  throw new Problem(`"${specifier}" is not in an import map: write "npm:${specifier}", or map it in deno.json`)
}

async function fromPackage(
  imports: Imports,
  { from, path }: Extract<Module, { kind: 'package' }>,
  request: Import,
): Promise<Module> {
  const { specifier, kind } = request
  if (/^\.{0,2}(\/|$)/.test(specifier)) {
    const target = specifier.startsWith('/') ? specifier : new URL(specifier, urlOf(path)).pathname
    const file = fileOf(from, pathOf({ pathname: target }))
    if (file === undefined)
      return missingModule(request, `${from.name}@${from.version} has no file "${target.slice(1)}"`)
    return moduleOf(from, file)
  }
  if (specifier.startsWith('#')) {
    const target = internalOf(from, specifier, kind)
    return target.startsWith('./')
      ? moduleOf(from, fileOf(from, target))
      : fromDependency(imports, from, { ...request, specifier: target })
  }
  return fromDependency(imports, from, request)
}

async function fromDependency(imports: Imports, from: Installed, request: Import): Promise<Module> {
  const { specifier, kind } = request
  const runtime = runtimeModule(request)
  if (runtime) return runtime
  const browser = browserOf(from)
  if (typeof browser === 'object' && ownOf(browser, specifier) === false) return EMPTY
  const { name, subpath } = parseBare(specifier)
  if (name === from.json.name) return entry(from, subpath, kind)
  const { dependencies, optionalDependencies, peerDependencies, peerDependenciesMeta } = from.json
  // A package may be a peer and a dependency as well; it is then always installed.
  const isDependency = [dependencies, optionalDependencies].some((installed) => Object.hasOwn(installed, name))
  const isOptionalPeer = !isDependency && ownOf(peerDependenciesMeta, name)?.optional === true
  const declared = ownOf(dependencies, name) ?? ownOf(peerDependencies, name) ?? ownOf(optionalDependencies, name)
  const isRoot = imports.versions.roots.has(name)
  const missing = `${from.name}@${from.version} imports "${specifier}", which is not among its dependencies`
  if (!isRoot && (declared === undefined || (isOptionalPeer && request.isLazy))) return missingModule(request, missing)
  if (!isRoot && request.isLazy && Object.hasOwn(optionalDependencies, name)) {
    const installed = await imports.versions.install(name, declared ?? '*').catch(undefinedIfProblem)
    return installed && !isNative(installed) ? entry(installed, subpath, kind) : missingModule(request, missing)
  }
  return entry(await imports.versions.install(name, declared ?? '*'), subpath, kind)
}

function undefinedIfProblem(error: unknown): undefined {
  if (!(error instanceof Problem)) throw error
}

const INSTALL_SCRIPTS = ['preinstall', 'install', 'postinstall']

/** Whether a package is for one platform only, or built at installation. */
const isNative = ({ json: { os, cpu, gypfile, scripts } }: Installed): boolean =>
  os !== undefined ||
  cpu !== undefined ||
  gypfile === true ||
  INSTALL_SCRIPTS.some((script) => Object.hasOwn(scripts, script))

/** Ignores inherited properties: a package may have a name such as `constructor`. */
const ownOf = <T>(record: Record<string, T>, name: string): T | undefined =>
  Object.hasOwn(record, name) ? record[name] : undefined

/** Module that throws on `require`: packages often try optional imports and go on without them. */
function missingModule({ specifier, isLazy }: Import, message: string): Module {
  if (!isLazy) throw new Problem(message)
  const error = `Object.assign(new Error(${JSON.stringify(`Cannot find module '${specifier}'`)}), { code: 'MODULE_NOT_FOUND' })`
  return { kind: 'generated', name: `missing ${specifier}`, js: `module.exports = {}; throw ${error}` }
}

function entry(from: Installed, subpath: string, kind: Kind): Module {
  return from.name.startsWith('@types/') ? EMPTY : moduleOf(from, entryOf(from, subpath, kind))
}

function moduleOf(from: Installed, path: string | undefined): Module {
  if (path === undefined) return EMPTY
  const bytes = from.files.get(path)
  return bytes ? { kind: 'package', from, path, bytes } : EMPTY
}

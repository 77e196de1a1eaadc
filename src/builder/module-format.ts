import { type Module, pathnameOf } from './modules.ts'
import { typeOf } from './npm/package-type.ts'
import { textOf } from './source.ts'

/**
 * Suffix that marks an ES module. The bundler goes by the path, as it reads no package.json for modules from a plugin.
 */
const ESM_SUFFIX = '#.mjs'

/**
 * Path of a module for the bundler. In ES modules, a default import of CommonJS gives `module.exports`, as in Node and
 * Deno.
 */
export const withFormatSuffix = (module: Module, name: string): string => (isEsm(module) ? name + ESM_SUFFIX : name)

/** Removes the suffix from texts of the bundler. */
export const withoutFormatSuffix = (text: string): string => text.replaceAll(ESM_SUFFIX, '')

const SCRIPT = /\.[jt]sx?$/i
/** Path without an extension, as remote modules often have. */
const NO_EXTENSION = /(^|\/)[^./]*$/

function isEsm(module: Module): boolean {
  switch (module.kind) {
    case 'package':
      return SCRIPT.test(module.path) && typeOf(module.from, module.path) === 'module'
    case 'source':
      return SCRIPT.test(module.path) && !usesCommonJs(textOf(module.bytes))
    case 'remote': {
      const pathname = pathnameOf(module.url)
      return (SCRIPT.test(pathname) || NO_EXTENSION.test(pathname)) && !usesCommonJs(textOf(module.bytes))
    }
    default:
      return false
  }
}

// The indentation excludes line breaks: `\s*` would scan a series of blank lines again from each of its lines.
const EXPORTS = /^[^\S\r\n\u2028\u2029]*export\b(?!\s*=)/m
const COMMONJS =
  /(?<![.\w$])(?:module\.exports\b|exports(?:\.[\w$]|\[|\s*=)|typeof (?:exports|module)\b)|\(exports[,)]|^[^\S\r\n\u2028\u2029]*export\s*=/m

/**
 * Whether a file is CommonJS. Its extension does not tell, because ES modules have the same. The default is an ES module.
 */
const usesCommonJs = (text: string): boolean => !EXPORTS.test(text) && COMMONJS.test(text)

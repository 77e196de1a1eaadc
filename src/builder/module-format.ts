import type { Module } from './modules.ts'
import { typeOf } from './npm/package-type.ts'
import { textOf } from './source.ts'

/** The bundler learns it from the end of a path alone: it reads no package.json for modules that it is handed. */
const MARK = '#.mjs'

/** The path of a module, by which the bundler sees whether its imports of CommonJS give all of `module.exports`, as in Node and Deno. */
export const markedPath = (module: Module, name: string): string => (isEsm(module) ? name + MARK : name)

/** Of what the bundler says about modules. */
export const unmarked = (text: string): string => text.replaceAll(MARK, '')

const SCRIPT = /\.[jt]sx?$/i
/** With a name that says nothing, such as those of modules of the web often are. */
const UNNAMED = /(^|\/)[^./]*$/

function isEsm(module: Module): boolean {
  switch (module.kind) {
    case 'package':
      return SCRIPT.test(module.path) && typeOf(module.from, module.path) === 'module'
    case 'source':
      return SCRIPT.test(module.path) && !usesCommonJs(textOf(module.bytes))
    case 'remote': {
      const { pathname } = new URL(module.url)
      return (SCRIPT.test(pathname) || UNNAMED.test(pathname)) && !usesCommonJs(textOf(module.bytes))
    }
    default:
      return false
  }
}

const EXPORTS = /^\s*export\b(?!\s*=)/m
const COMMONJS =
  /(?<![.\w$])(?:module\.exports\b|exports(?:\.[\w$]|\[|\s*=)|typeof (?:exports|module)\b)|\(exports[,)]|^\s*export\s*=/m

/** In a program's own files both are found under one name; without either they are modules. */
const usesCommonJs = (text: string): boolean => !EXPORTS.test(text) && COMMONJS.test(text)

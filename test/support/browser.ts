import { createReadStream, createWriteStream, existsSync, readFileSync } from 'node:fs'
import { mkdir, mkdtemp, rename, rm, writeFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { pipeline } from 'node:stream/promises'
import { createBrotliDecompress } from 'node:zlib'
import { unpackTar } from 'modern-tar/fs'
import { type Browser, type BrowserContextOptions, chromium, type LaunchOptions, type Page } from 'playwright-core'
import { ROOT } from '../../dev/bundle.ts'

/** The folder of the package that carries Chromium, compressed. */
const PACKAGE = join(dirname(createRequire(import.meta.url).resolve('@sparticuz/chromium')), '..')

/** A browser without a font measures every text as 0 pixels wide. */
const FONTS_CONF = '<fontconfig><dir prefix="relative">fonts</dir></fontconfig>'

/** Starts a headless Chromium. Its package has a build for Linux on x64; elsewhere, Chrome must be installed. */
export async function startBrowser(): Promise<Browser> {
  const isPackaged = process.platform === 'linux' && process.arch === 'x64'
  const options: LaunchOptions = isPackaged ? packagedBrowser(await unpackBrowser()) : { channel: 'chrome' }
  return chromium.launch({ ...options, timeout: 120_000 })
}

/** Opens an empty page, whose waits end only after the time that a busy machine may need. */
export async function newPage(browser: Browser, options: BrowserContextOptions = {}): Promise<Page> {
  const page = await browser.newPage(options)
  page.setDefaultTimeout(120_000)
  return page
}

/**
 * Takes the libraries and the font of the package, never the system's, so that a machine needs neither. The arguments that
 * the package recommends are not used: they switch off CORS.
 */
const packagedBrowser = (folder: string): LaunchOptions => ({
  executablePath: join(folder, 'chromium'),
  env: { ...process.env, LD_LIBRARY_PATH: join(folder, 'lib'), FONTCONFIG_PATH: folder },
})

/** Unpacks the browser once for each version, and returns its folder. */
async function unpackBrowser(): Promise<string> {
  const { version } = JSON.parse(readFileSync(join(PACKAGE, 'package.json'), 'utf8'))
  const folder = join(ROOT, 'dist', `chromium-${version}`)
  if (existsSync(folder)) return folder
  await mkdir(dirname(folder), { recursive: true })
  const scratch = await mkdtemp(`${folder}-`)
  await Promise.all([
    pipeline(...unpacked('chromium.br'), createWriteStream(join(scratch, 'chromium'), { mode: 0o755 })),
    pipeline(...unpacked('al2023.tar.br'), unpackTar(scratch)),
    pipeline(...unpacked('fonts.tar.br'), unpackTar(scratch)),
  ])
  await writeFile(join(scratch, 'fonts.conf'), FONTS_CONF)
  // Another process may have been first.
  await rename(scratch, folder).catch(() => rm(scratch, { recursive: true }))
  return folder
}

const unpacked = (name: string) => [createReadStream(join(PACKAGE, 'bin', name)), createBrotliDecompress()] as const

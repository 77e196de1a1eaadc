import { chmod, mkdtemp, symlink } from 'node:fs/promises'
import { join } from 'node:path'

/** Makes the folder of a new host, with the templates of the run: building them would be most of the work of a first instance. */
export async function newHostFolder(): Promise<string> {
  // The path of a socket has at most 107 bytes.
  const folder = await mkdtemp('/tmp/ph-')
  // Instances run under accounts of their own, which must reach the folder.
  await chmod(folder, 0o711)
  const { TEST_TEMPLATES: templates } = process.env
  if (templates) await symlink(templates, join(folder, 'templates'))
  return folder
}

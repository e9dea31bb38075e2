"""What the build asks the interpreter.

about.py           its version, the folder of its headers, the suffix of extension modules, as a CMake list
about.py PREFIX    where below PREFIX it looks for packages, as a relative path
"""

import os
import site
import sys
import sysconfig

version = "{}.{}".format(*sys.version_info)
if len(sys.argv) == 1:
    print(";".join([version, sysconfig.get_path("include"), sysconfig.get_config_var("EXT_SUFFIX")]))
else:
    prefix = os.path.normpath(sys.argv[1])
    folders = [*site.getsitepackages(), site.getusersitepackages()]
    below = [f for f in folders if f.startswith(os.path.join(prefix, "lib"))]
    # Elsewhere it does not look; PYTHONPATH then finds what lies as it does below its own prefix.
    print(os.path.relpath(below[0], prefix) if below else f"lib/python{version}/{os.path.basename(folders[0])}")

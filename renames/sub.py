#!/usr/bin/env python3
"""sub.py ROOT LIST: GLOB ; REGEX ; REPLACEMENT per line."""
import glob, os, re, sys
root=sys.argv[1]
for l in open(sys.argv[2]):
    l=l.rstrip('\n')
    if not l.strip() or l.startswith('#'): continue
    g,r,n=[x.strip() for x in l.split(' ; ')]
    c=0
    for f in glob.glob(os.path.join(root,g),recursive=True):
        if not os.path.isfile(f): continue
        s=open(f).read(); t,k=re.subn(r,n,s,flags=re.M)
        if k: open(f,'w').write(t); c+=k
    print('%6d  %s' % (c,l), flush=True)
